// A request from scratch, or from a curl line that was pasted.

import { button, encode, make, say } from "./dom.js";
import { fromCurl } from "./curl.js";
import { withEnds } from "./editor.js";
import { methodInput } from "./forms.js";
import { linesOf, valuesOf } from "./headers.js";
import { ask } from "./server.js";
import { dialog, field } from "./ui.js";

/** Opens the composer; `sent` is called with the identifier of the new request. */
export async function compose(sent) {
  const { tunnels } = await ask("/api/tunnels");
  const input = (value, attributes) => {
    const element = make("input", { autocomplete: "off", spellcheck: "false", class: "mono", ...attributes });
    element.value = value;
    return element;
  };
  const area = (rows, attributes = {}) => make("textarea", { rows, spellcheck: "false", class: "mono", ...attributes });
  const names = tunnels.filter(({ proto }) => /^https?$/.test(proto)).map(({ name }) => name);
  if (!names.length) throw new Error("No HTTP tunnel runs: start one first.");
  const tunnel = make("select", {}, names.map((name) => make("option", { value: name }, name || "(without a name)")));
  const method = methodInput("GET", { required: true });
  const target = input("/", { required: true });
  const headers = area("4");
  const body = area("7");
  const file = make("input", { type: "file" });
  const addr = input("", { placeholder: "where the tunnel leads" });
  const curl = area("3", { placeholder: "curl -X POST shop.example/hook -H 'Content-Type: application/json' -d '{}'" });
  const problem = make("p", { class: "problem", role: "alert" });
  let taken = "";
  const take = () => {
    try {
      const request = fromCurl(curl.value);
      method.control.value = request.method;
      target.value = request.target;
      headers.value = linesOf(request.headers);
      body.value = request.body;
      taken = request.body;
      say(problem, "");
      method.control.focus();
    } catch (error) {
      say(problem, error.message);
    }
  };
  dialog("Compose a request", make("div", {},
    make("p", { class: "hint" }, "It goes straight to the local service: the rules of edges are not applied."),
    make("details", {}, make("summary", {}, "From a curl line"), field("A curl line", curl), button("Take it over", take), problem),
    make("div", { class: "fields line-fields" }, field("Method", method.control), field("Path and query", target)), method.list,
    field("Headers, one on each line", headers, "Host and the length of the body are added."),
    field("Body", body),
    make("details", {}, make("summary", {}, "Tunnel, address, file"),
      make("div", { class: "fields" }, field("Tunnel", tunnel), field("Address", addr, "Another place on this machine, such as localhost:8081, or the address of one of the tunnels.")),
      field("Body from a file", file))),
  [["Send", async () => {
    const request = {
      method: method.control.value, target: target.value, tunnel_name: tunnel.value, headers: valuesOf(headers.value),
      ...(addr.value.trim() ? { addr: addr.value.trim() } : {}),
    };
    if (file.files.length) request.body_base64 = encode(new Uint8Array(await file.files[0].arrayBuffer()));
    else if (body.value) request.body = body.value === taken.replace(/\r\n?/g, "\n") ? taken : withEnds(body.value, taken);
    const { id } = await ask("/api/requests/send", { method: "POST", body: request });
    sent(id);
  }]], { className: "editor" });
  method.control.focus();
}
