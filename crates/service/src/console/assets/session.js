// Who is logged in, and calls in the name of that key. The cookie of the session is out of reach of
// scripts; its other half is kept here, for this origin alone.

import { Problem } from "./server.js";
import { recall, remember } from "./ui.js";

const TOKEN = "console.token";

/** Hears that the session is over. */
let ended = () => {};
export function onEnd(listener) {
  ended = listener;
}

/** Hears since when the service has not answered; null as soon as it does again. */
let reached = () => {};
export function onReach(listener) {
  reached = listener;
}

/** When the service answered last, and whether it has not answered a request since. */
let [lastAnswer, isAway] = [Date.now(), false];

function note(isAnswered) {
  const since = lastAnswer;
  if (isAnswered) lastAnswer = Date.now();
  if (isAway !== isAnswered) return;
  isAway = !isAnswered;
  reached(isAway ? new Date(since) : null);
}

async function reach(path, options = {}) {
  const headers = { "console-token": recall(TOKEN, ""), ...options.headers };
  let response;
  try {
    response = await fetch(path, { cache: "no-store", ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    note(false);
    throw new Problem("The service cannot be reached.", 0);
  }
  const refusal = response.ok ? null : await response.json().catch(() => null);
  // A proxy answers in place of a service that is away.
  note(response.ok || refusal !== null || response.status < 502);
  if (response.ok) return response;
  if (response.status === 401 && path !== "session") ended();
  const text = refusal?.msg?.replace(/^invalid request body: /, "");
  const problem = new Problem(text ?? `The service responded with ${response.status}.`, response.status);
  problem.code = refusal?.error_code;
  throw problem;
}

/** How often the service is asked whether it is there when nothing else asks, and when it is away, in milliseconds. */
const [QUIET, AWAY] = [10_000, 2000];
/** How long it may take to answer what is asked in the background, in milliseconds. */
const PATIENCE = 15_000;

/** Looks after the service for as long as somebody is logged in, whatever is shown. */
export function watch(isWatched) {
  setInterval(async () => {
    if (!isWatched() || document.hidden || Date.now() - lastAnswer < (isAway ? AWAY : QUIET)) return;
    try {
      await reach("session", inBackgroundOptions());
    } catch (error) {
      if (error.status === 401 && isWatched()) ended();
    }
  }, AWAY);
}

const inBackgroundOptions = (options = {}) => ({
  ...options, headers: { ...options.headers, "console-background": "1" }, signal: AbortSignal.timeout(PATIENCE),
});

function withBody(method, body) {
  if (body === undefined) return { method };
  return { method, headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
}

async function read(response) {
  return response.status === 204 ? null : response.json();
}

/**
 * Calls the management API; the result, or a Problem. What is asked for `inBackground`, without the user, does not keep
 * the session from becoming idle.
 */
export async function call(path, method = "GET", body = undefined, { inBackground = false } = {}) {
  const options = withBody(method, body);
  return read(await reach(`api${path}`, inBackground ? inBackgroundOptions(options) : options));
}

/** Asks for what only the console has. */
export async function data(path, body = undefined, { inBackground = false } = {}) {
  const options = withBody(body === undefined ? "GET" : "POST", body);
  return read(await reach(`data/${path}`, inBackground ? inBackgroundOptions(options) : options));
}

/** Who is logged in; null when nobody is. */
export async function whoami() {
  if (!recall(TOKEN, "")) return null;
  try {
    return await read(await reach("session"));
  } catch (error) {
    if (error.status === 0 || error.status >= 500) throw error;
    return null;
  }
}

/** Logs in with an API key, which is sent once and not kept here. */
export async function logIn(key) {
  // A header has no other characters; such a key is refused by name.
  const printable = /^[\x21-\x7e]+$/.test(key) ? key : "-";
  const response = await reach("session", { method: "POST", headers: { authorization: `Bearer ${printable}` } });
  const { token, ...caller } = await response.json();
  remember(TOKEN, token);
  return caller;
}

export async function logOut() {
  try {
    await reach("session", { method: "DELETE" });
  } finally {
    remember(TOKEN, "");
  }
}

/** Hears updates of a stream until it is aborted; an error is thrown when it ends by itself. */
export async function follow(path, signal, heard) {
  const response = await reach(`data/${path}`, { signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  heard(null);
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Problem("The stream has ended.", 0);
    note(true);
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) if (part.startsWith("data: ")) heard(JSON.parse(part.slice(6)));
  }
}
