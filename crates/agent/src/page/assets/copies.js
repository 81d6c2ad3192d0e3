// Copies of requests in other forms.

import { askBytes, query } from "./server.js";

/** The forms, with their names. */
export const FORMS = [["curl", "curl"], ["requests", "Python: requests"], ["httpie", "HTTPie"], ["ginnel", "Python: ginnel"], ["raw", "raw"], ["url", "URL"]];

/** A request in another form, and whether secrets in it are masked. */
export async function copyOf(id, form, reveal) {
  const { bytes, headers } = await askBytes(`/inspect/data/requests/${id}/copy${query({ as: form, reveal: reveal ? "1" : "" })}`);
  try {
    return { text: new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes), isMasked: headers.has("secrets-masked") };
  } catch {
    throw new Error("The request has bytes that are not text, which a clipboard cannot keep. Copy it as curl or for Python.");
  }
}
