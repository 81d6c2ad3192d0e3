// Files that describe the messages of gRPC: added to the agent, and kept there until it ends.

import { button, encode, make, say } from "./dom.js";
import { ask } from "./server.js";
import { dialog, toast } from "./ui.js";

/** As crates/agent/src/web/routes.rs limits bodies. */
const MAX_BYTES = 700 * 1024;
const isText = ({ name }) => name.endsWith(".proto");

/** A button that opens the files; `changed` hears when others describe the messages. */
export function protoFilesButton(changed) {
  return button("Proto files…", () => open(changed), { class: "small", title: "Show messages by the names of their fields" });
}

function open(changed) {
  const list = make("ul", { class: "proto-files" });
  const problem = make("p", { class: "problem", role: "alert" });
  const attempt = async (work) => {
    say(problem, "");
    try {
      await work();
      changed();
    } catch (error) {
      say(problem, error.message);
    }
    await draw();
  };
  const input = make("input", { type: "file", multiple: true, accept: ".proto,.pb,.binpb,.protoset,.desc,.bin", "aria-label": "Proto files or a descriptor set",
    change: () => {
      const files = [...input.files];
      attempt(async () => {
        await add(files);
        input.value = "";
      });
    } });
  const draw = async () => {
    const { proto_files: files } = await ask("/api/proto_files");
    list.replaceChildren(...(files.length ? files.map((file) => row(file, attempt)) : [make("li", { class: "hint" }, "None yet: messages are shown by the numbers of their fields.")]));
  };
  dialog("Proto files", make("div", {},
    make("p", { class: "hint" }, "With a .proto file and those that it imports, or what protoc --include_imports --descriptor_set_out writes, messages have the names of their fields. The agent keeps them until it ends."),
    input, problem, list));
  input.focus();
  draw().catch((error) => say(problem, error.message));
}

async function add(files) {
  const length = files.reduce((sum, { size }) => sum + size, 0);
  if (length > MAX_BYTES) throw new Error(`The files have ${length} bytes together, at most ${MAX_BYTES} can be added at once.`);
  const texts = await Promise.all(files.filter(isText).map(async (file) => [file.name, await file.text()]));
  const sets = await Promise.all(files.filter((file) => !isText(file)).map(async (file) => encode(new Uint8Array(await file.arrayBuffer()))));
  const bodies = [...(texts.length ? [{ files: Object.fromEntries(texts) }] : []), ...sets.map((set) => ({ descriptor_set: set }))];
  let count = 0;
  for (const body of bodies) count += (await ask("/api/proto_files", { method: "POST", body })).proto_files.length;
  toast(`${count} ${count === 1 ? "file was" : "files were"} added`);
}

function row({ name, uri, messages, methods }, attempt) {
  const parts = [[messages, "message"], [methods, "method"]].filter(([all]) => all.length).map(([all, word]) => `${all.length} ${word}${all.length === 1 ? "" : "s"}`);
  return make("li", {}, make("code", {}, name), make("span", { class: "hint wide" }, parts.join(", ")),
    button("Remove", () => attempt(() => ask(uri, { method: "DELETE" })), { class: "small", "aria-label": `Remove ${name}` }));
}
