// What can be done with several requests at once.

import { announce, button, byId, make, say } from "./dom.js";
import { FORMS, copyOf } from "./copies.js";
import { difference } from "./difference.js";
import { ask, query } from "./server.js";
import { shared } from "./share.js";
import { isFolded } from "./tools.js";
import { confirm, copyText, menu, notice, toast } from "./ui.js";

/** The bar that is shown while requests are selected. */
export class Selection {
  /** `revealed` says whether secrets are shown, `show` gets what stands in the place of the detail. */
  constructor(place, list, { revealed, show }) {
    Object.assign(this, { list, revealed, show });
    this.count = make("strong");
    this.har = make("a", { class: "button", id: "selected-har", download: "requests.har", click: () => this.export() }, "HAR");
    this.html = button("HTML", () => this.share(), { id: "share", title: "One page to pass on, with secrets masked" });
    this.compare = button("Compare", () => this.compareBoth());
    this.bar = make("div", { id: "selection", class: "tools", hidden: true, role: "group", "aria-label": "Selected requests" },
      this.count, this.har, this.html, menu("Copy as", () => this.forms()),
      this.compare, button("Delete", () => this.delete(), { class: "danger" }), button(make("span", { class: "long" }, "Select none"), () => list.mark([]), { class: "quiet", id: "select-none", "aria-label": "Select none" }));
    place.append(this.bar);
  }

  /** What can be made of them: also as files, where there is no room for buttons. */
  forms() {
    const files = isFolded(this.html) ? [["HAR file", () => this.har.click()], ["HTML file", () => this.share()], null] : [];
    return [...files, ...FORMS.map(([form, name]) => [name, () => this.copy(form)])];
  }

  /** The selected requests, in the order in which they are listed. */
  keys() {
    return [...this.list.marked].sort((a, b) => this.list.indexOf(a) - this.list.indexOf(b));
  }

  changed(marked) {
    this.bar.hidden = marked.size === 0;
    byId("tools").classList.toggle("selecting", marked.size > 0);
    say(this.count, `${marked.size} selected`);
    this.compare.disabled = marked.size !== 2;
    this.har.href = this.archive(false);
    announce(marked.size ? `${marked.size} requests are selected` : "");
  }

  async share() {
    try {
      const file = await shared(this.keys());
      const url = URL.createObjectURL(new Blob([file], { type: "text/html" }));
      make("a", { href: url, download: "requests.html" }).click();
      setTimeout(() => URL.revokeObjectURL(url), 1000);
    } catch (error) {
      notice(error.message);
    }
  }

  /** Where the archive of what is selected is. */
  archive(reveal) {
    const ids = this.keys().map((id) => ["id", id]);
    return `/inspect/data/export.har?${new URLSearchParams([...ids, ...(reveal ? [["reveal", "1"]] : [])])}`;
  }

  /** Secrets are in the archive if they are shown when it is asked for; the link keeps none for later. */
  export() {
    this.har.href = this.archive(this.revealed());
    setTimeout(() => {
      this.har.href = this.archive(false);
    });
  }

  async copy(form, reveal = this.revealed()) {
    try {
      const copies = await Promise.all(this.keys().map((id) => copyOf(id, form, reveal)));
      if (!await copyText(copies.map(({ text }) => text).join("\n"))) return;
      const masked = copies.some(({ isMasked }) => isMasked);
      toast(`${copies.length} requests were copied${masked ? ", with secrets masked" : ""}`,
        masked ? ["Copy with secrets", () => this.copy(form, true)] : null);
    } catch (error) {
      notice(error.message);
    }
  }

  async compareBoth() {
    const reveal = this.revealed() ? "1" : "";
    try {
      // The older one is what the newer is compared with.
      const ids = this.keys().sort();
      const [before, after] = await Promise.all(ids.map((id) => ask(`/inspect/data/requests/${id}${query({ reveal })}`)));
      const title = (detail) => `${detail.method} ${detail.target} (${detail.start.slice(11, 23)})`;
      const part = (name) => make("section", { class: "part" },
        make("h3", {}, name[0].toUpperCase() + name.slice(1)), difference(before[name], after[name]));
      this.show(make("section", { class: "compared", "aria-label": "Comparison" },
        make("h2", {}, "Two requests compared"),
        make("p", { class: "hint" }, `- ${title(before)}`), make("p", { class: "hint" }, `+ ${title(after)}`),
        make("div", { class: "parts" }, part("request"), part("response"))));
    } catch (error) {
      notice(error.message);
    }
  }

  delete() {
    const ids = this.keys();
    confirm("Delete requests", `${ids.length} captured ${ids.length === 1 ? "request is" : "requests are"} removed from the agent’s memory. This cannot be undone.`, "Delete", async () => {
      await Promise.all(ids.map((id) => ask(`/api/requests/http/${id}`, { method: "DELETE" })));
      this.list.drop(ids);
      this.list.mark([]);
      toast(`${ids.length} requests were deleted`);
    });
  }
}
