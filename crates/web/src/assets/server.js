// Asks the program that the page comes from: the agent or the service, as the page names it.

const server = document.documentElement.dataset.server ?? "server";

/** Why the program refused, or could not be asked. */
export class Problem extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** The response as JSON; null when it has no body. */
export async function ask(path, { method = "GET", body } = {}) {
  const answer = await reach(path, {
    method,
    headers: body === undefined ? {} : { "content-type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  return answer.status === 204 ? null : answer.json();
}

/** The bytes of the response, and its headers. */
export async function askBytes(path) {
  const answer = await reach(path, {});
  return { bytes: await answer.arrayBuffer(), headers: answer.headers };
}

async function reach(path, options) {
  let answer;
  try {
    answer = await fetch(path, { cache: "no-store", ...options });
  } catch {
    throw new Problem(`The ${server} cannot be reached.`, 0);
  }
  if (answer.ok) return answer;
  const refusal = await answer.json().catch(() => ({}));
  const reason = refusal.details?.err ?? refusal.details?.path ?? "";
  const message = refusal.msg ?? `The ${server} responded with ${answer.status}`;
  throw new Problem(reason ? `${message}: ${reason}` : message, answer.status);
}

/** A query string of what is given. */
export function query(values) {
  const given = Object.entries(values).filter(([, value]) => value);
  return given.length ? `?${new URLSearchParams(given)}` : "";
}
