// Follows what is new: as a stream of events, or, where that is cut, by asking again and again.

import { ask, query } from "./server.js";

const PATIENCE = 3;
const PAUSE = 1000;
const RETRY_STREAM = 15000;

export class Live {
  /** `update` gets every update, `link` gets "live", "polling" or "lost". */
  constructor({ update, link }) {
    this.update = update;
    this.link = link;
    this.filter = "";
    this.cursor = null;
    this.failures = 0;
    this.started = false;
    // Browsers open six connections to one place: pages that are not seen leave them to others.
    document.addEventListener("visibilitychange", () => {
      if (!this.started) return;
      this.halt();
      if (!document.hidden) this.listen();
    });
  }

  /** Starts anew with a filter, after what is known already. */
  start(filter, cursor = null) {
    this.stop();
    this.filter = filter;
    this.cursor = cursor;
    this.failures = 0;
    this.started = true;
    if (!document.hidden) this.listen();
  }

  stop() {
    this.started = false;
    this.halt();
  }

  halt() {
    this.source?.close();
    this.source = null;
    clearTimeout(this.timer);
    this.turn = (this.turn ?? 0) + 1;
  }

  take(update) {
    this.cursor = update.cursor;
    this.failures = 0;
    this.update(update);
  }

  listen() {
    const source = new EventSource(
      `/inspect/data/events${query({ filter: this.filter, since: this.cursor })}`,
    );
    this.source = source;
    source.onmessage = (event) => {
      this.link("live");
      this.take(JSON.parse(event.data));
    };
    source.onerror = () => {
      this.failures += 1;
      this.link("lost");
      if (this.failures >= PATIENCE) {
        this.halt();
        this.poll(Date.now() + RETRY_STREAM);
      } else if (source.readyState === EventSource.CLOSED) {
        this.timer = setTimeout(() => this.listen(), PAUSE);
      }
    };
  }

  async poll(until) {
    const turn = this.turn;
    try {
      const found = await ask(
        `/inspect/data/requests${query({ filter: this.filter, since: this.cursor })}`,
      );
      if (turn !== this.turn) return;
      this.link("polling");
      this.take(found);
    } catch {
      if (turn !== this.turn) return;
      this.link("lost");
    }
    const next = Date.now() < until ? () => this.poll(until) : () => this.listen();
    this.timer = setTimeout(next, PAUSE);
  }
}
