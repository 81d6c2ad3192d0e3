// Multipart bodies: their parts, as bytes.

const CRLF = [13, 10];

function indexOf(bytes, part, from) {
  const last = bytes.length - part.length;
  for (let at = bytes.indexOf(part[0], from); at >= 0 && at <= last; at = bytes.indexOf(part[0], at + 1)) {
    let length = 1;
    while (length < part.length && bytes[at + length] === part[length]) length += 1;
    if (length === part.length) return at;
  }
  return -1;
}

/**
 * The parts as `{ head, name, filename, type, body }`; null where the body has no boundary. A part that
 * was cut off is there as far as it goes.
 */
export function parts(bytes) {
  if (bytes[0] !== 45 || bytes[1] !== 45) return null;
  const end = bytes.indexOf(13) < 0 ? bytes.length : bytes.indexOf(13);
  const boundary = bytes.subarray(0, end);
  if (boundary.length < 3) return null;
  const found = [];
  for (let at = end + 2; at < bytes.length;) {
    const next = indexOf(bytes, [...CRLF, ...boundary], at);
    found.push(part(bytes.subarray(at, next < 0 ? bytes.length : next)));
    if (next < 0) break;
    const after = next + 2 + boundary.length;
    if (bytes[after] === 45 && bytes[after + 1] === 45) break;
    at = after + 2;
  }
  return found;
}

function part(bytes) {
  const blank = indexOf(bytes, [...CRLF, ...CRLF], 0);
  const head = new TextDecoder().decode(bytes.subarray(0, blank < 0 ? bytes.length : blank)).trim();
  const field = (name) => new RegExp(`^${name}:[ \\t]*([^\\r\\n]*)`, "im").exec(head)?.[1] ?? "";
  const disposition = field("content-disposition");
  const word = (name) => new RegExp(`(?:^|[;\\s])${name}="([^"]*)"`, "i").exec(disposition)?.[1];
  return {
    head,
    name: word("name") ?? "part",
    filename: word("filename"),
    type: field("content-type").split(";")[0].trim().toLowerCase(),
    body: blank < 0 ? new Uint8Array() : bytes.subarray(blank + 4),
  };
}
