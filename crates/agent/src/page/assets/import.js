// Archives (HAR) that are read into the list.

import { button, make } from "./dom.js";
import { ask } from "./server.js";
import { notice, toast } from "./ui.js";

/** As crates/agent/src/web/routes.rs limits archives. */
const MAX_BYTES = 64 * 1024 * 1024;

/** A button that asks for a file and hands its requests to the agent, and the field behind it. */
export function importButton() {
  const input = make("input", { type: "file", accept: ".har,.json,application/json", hidden: true, "aria-label": "Archive of requests",
    change: async () => {
      const [file] = input.files;
      input.value = "";
      if (file) await load(file).catch((error) => notice(error.message, "The archive was not imported"));
    } });
  return [button("Import HAR…", () => input.click(), { id: "import", title: "Adds the requests of an archive to the list; nothing is sent" }), input];
}

async function load(file) {
  if (file.size > MAX_BYTES) throw new Error(`${file.name} is longer than 64 MiB.`);
  let archive;
  try {
    archive = JSON.parse((await file.text()).replace(/^\ufeff/, ""));
  } catch (error) {
    throw new Error(`${file.name} is no JSON: ${error.message}`);
  }
  const { ids, skipped, problems, ignored } = await ask("/api/requests/import", { method: "POST", body: { log: archive?.log } });
  const fields = ignored.length ? ["Fields that were not kept", () => notice(ignored.join("\n"), "Fields of the archive that the agent does not keep")] : null;
  toast(`${ids.length} ${ids.length === 1 ? "request was" : "requests were"} imported`, fields);
  if (!problems.length) return;
  const left = skipped ? `${skipped} of the archive’s entries are not exchanges of HTTP.\n` : "";
  notice(`${left}${problems.join("\n")}`, skipped ? "Some entries were left out" : "Some of the archive was not understood");
}
