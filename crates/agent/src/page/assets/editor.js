// Changes a request and sends it again.

import { button, bytes, decode, encode, make } from "./dom.js";
import { bytesOfDigits, digitsOf, linesOf, pairsOf } from "./headers.js";
import { ask } from "./server.js";
import { showModal } from "./ui.js";

/** How long a body may be that is edited as digits, in bytes. */
const MAX_DIGITS = 256 * 1024;

/** Opens the editor; `send` gets the changes and may fail. */
export async function edit(detail, exact, { send }) {
  const { tunnels } = await ask("/api/tunnels");
  const original = decode(exact.request.body);
  // Masked where secrets are; then it is sent as it came.
  const hidden = detail.request.masked;
  const cut = exact.request.length > exact.request.kept;
  const words = hidden || !(exact.request.editable || cut) ? null : exact.request.text ?? exact.request.raw_text;
  const digits = !hidden && words === null && original.length <= MAX_DIGITS ? digitsOf(original) : null;
  const headers = linesOf(detail.request.headers.map(({ name, value }) => [name, value]));
  const field = (label, control, hint) => make("div", { class: "field" },
    make("label", { for: control.id }, label), control,
    hint ? make("p", { class: "hint", id: `${control.id}-hint` }, hint) : null);
  const names = tunnels.filter((tunnel) => /^https?$/.test(tunnel.proto)).map((tunnel) => tunnel.name);
  const tunnel = make("select", { id: "edit-tunnel" }, names.map((name) =>
    make("option", { value: name, selected: name === detail.tunnel }, name || "(without a name)")));
  const method = make("input", { id: "edit-method", value: detail.method, required: true, autocomplete: "off", spellcheck: "false" });
  const target = make("input", { id: "edit-target", value: detail.target, required: true, autocomplete: "off", spellcheck: "false" });
  const fields = make("textarea", { id: "edit-headers", rows: "8", spellcheck: "false", "aria-describedby": "edit-headers-hint" });
  fields.value = headers;
  const body = make("textarea", { id: "edit-body", rows: "10", spellcheck: "false", class: digits === null ? null : "mono", disabled: words === null && digits === null });
  body.value = words ?? digits ?? "";
  const trailers = make("textarea", { id: "edit-trailers", rows: "2", spellcheck: "false", "aria-describedby": "edit-trailers-hint" });
  trailers.value = linesOf(detail.request.trailers.map(({ name, value }) => [name, value]));
  const trailersBefore = trailers.value;
  const file = make("input", { id: "edit-file", type: "file" });
  const problem = make("p", { class: "problem", role: "alert" });
  const bodyHint = hidden ? "It has secrets, and is sent as it is unless a file is chosen. Show secrets to change it."
    : digits !== null
    ? `${bytes(original.length)} that are not text, as hexadecimal digits.`
    : words === null
    ? `${bytes(original.length)} that are not text; they are sent as they are unless a file is chosen.`
    : exact.request.encoding ? `${exact.request.encoding} was decoded. Changed text is sent without it.`
    : cut ? `✂ Only ${bytes(exact.request.kept)} of ${bytes(exact.request.length)} were kept.` : null;

  const dialog = make("dialog", { class: "editor", "aria-labelledby": "edit-title" });
  const form = make("form", {
    method: "dialog",
    submit: async (event) => {
      event.preventDefault();
      problem.textContent = "";
      try {
        await send(await changes());
        dialog.close();
      } catch (error) {
        problem.textContent = error.message;
      }
    },
  },
  make("h2", { id: "edit-title" }, "Edit and replay"),
  make("p", { class: "hint" }, "It goes straight to the local service: the rules of edges are not applied."),
  field("Tunnel", tunnel), field("Method", method), field("Path and query", target),
  field("Headers, one on each line", fields, "Masked values are sent as they were. The length of the body is computed."),
  field("Body", body, bodyHint), field("Body from a file", file),
  field("Trailers, one on each line", trailers, "Headers that come after the body, which then goes in chunks."), problem,
  make("div", { class: "actions" },
    make("button", { id: "edit-send", class: "strong" }, "Send"),
    button("Cancel", () => dialog.close())));

  async function changes() {
    const changed = { tunnel: tunnel.value };
    if (method.value !== detail.method) changed.method = method.value;
    if (target.value !== detail.target) changed.target = target.value;
    if (fields.value !== headers) changed.headers = pairsOf(fields.value);
    if (file.files.length) changed.body = encode(new Uint8Array(await file.files[0].arrayBuffer()));
    else if (words !== null && body.value !== words.replace(/\r\n?/g, "\n")) {
      // The agent encodes it in the charset of the request, and sends it without content codings.
      changed.body_text = withEnds(body.value, words);
    }
    else if (digits !== null && body.value !== digits) changed.body = encode(bytesOfDigits(body.value));
    if (trailers.value !== trailersBefore) changed.trailers = restored(pairsOf(trailers.value, "Trailers"));
    return changed;
  }

  /** Trailers with the values that are masked here. */
  function restored(pairs) {
    const left = detail.request.trailers.map(({ name, value }, at) => [name, value, exact.request.trailers[at].value]);
    return pairs.map(([name, value]) => {
      const at = left.findIndex(([known, shown]) => known.toLowerCase() === name.toLowerCase() && shown === value);
      return at < 0 ? [name, value] : [name, left.splice(at, 1)[0][2]];
    });
  }

  dialog.append(form);
  showModal(dialog);
  method.focus();
}

/** Text with line ends as they were before; a text area has line feeds alone. */
export function withEnds(changed, before) {
  const ends = before.match(/\r\n|\r|\n/g) ?? [];
  return ends.length && ends.every((end) => end === ends[0]) ? changed.replaceAll("\n", ends[0]) : changed;
}
