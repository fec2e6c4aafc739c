// What the model is and how the server is doing, asked again every two seconds while somebody looks.

import { ask } from "./server.js";

const PAUSE = 2000;
const whole = new Intl.NumberFormat("en");
const percent = new Intl.NumberFormat("en", { style: "percent", maximumFractionDigits: 1 });

/** Fills the facts in, and keeps them fresh. */
export class ModelFacts {
  #section;
  #summary;
  #timer = 0;

  /** The facts as they were last told; null before. */
  latest = null;

  constructor(section, summary) {
    this.#section = section;
    this.#summary = summary;
  }

  /** Ask, and show the answer. Throws what `ask` throws. */
  async load() {
    this.latest = await ask("facts");
    this.#show(this.latest);
  }

  /** Keep them fresh, but not in a tab that nobody sees. */
  watch() {
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) clearTimeout(this.#timer);
      else this.#refresh();
    });
    this.#refreshLater();
  }

  async #refresh() {
    const problem = this.#section.querySelector(".problem");
    try {
      await this.load();
      problem.hidden = true;
    } catch (error) {
      problem.textContent = `${error.message} These figures are the last it gave.`;
      problem.hidden = false;
    }
    this.#refreshLater();
  }

  #refreshLater() {
    clearTimeout(this.#timer);
    if (!document.hidden) this.#timer = setTimeout(() => this.#refresh(), PAUSE);
  }

  #show(facts) {
    const users = facts.num_users === null ? "" : `${whole.format(facts.num_users)} users, `;
    this.#summary.textContent =
      `${facts.scheme}, ${facts.backbone}, ${facts.embedding_dim} dimensions, ${facts.precision} · ` +
      `${users}${whole.format(facts.num_items)} items`;
    for (const [name, text] of Object.entries(texts(facts))) {
      this.#section.querySelector(`[data-fact="${name}"]`).textContent = text;
    }
    const share = facts.table_bytes ? facts.bytes / facts.table_bytes : 0;
    const bar = this.#section.querySelector("#share-bar");
    bar.parentElement.hidden = share === 0;
    bar.style.width = `${Math.min(share, 1) * 100}%`;
  }
}

function texts(facts) {
  const { p50, p99 } = facts.latency_ms;
  const { auc, popularity_auc: popularity } = facts.results;
  const table = facts.table_bytes;
  return {
    bytes: inUnits(facts.bytes),
    share: table
      ? `${percent.format(facts.bytes / table)} of the ${inUnits(table)} that tables would take, ` +
        `${facts.bytes_per_id.toFixed(1)} bytes for each id`
      : `${whole.format(facts.embedding_parameters)} parameters`,
    auc: auc?.toFixed(4) ?? "–",
    popularity: popularity == null ? "" : `popularity alone ${popularity.toFixed(4)}`,
    p50: p50 === null ? "–" : milliseconds(p50),
    p99: p99 === null ? "nothing asked yet" : `99 of 100 within ${milliseconds(p99)}`,
    hits: facts.hot_hit_rate === null ? "–" : percent.format(facts.hot_hit_rate),
    "hits-meaning": facts.hot_hit_rate === null ? "nothing asked yet" : "of the ids asked for",
    requests: whole.format(facts.requests),
  };
}

function milliseconds(value) {
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`;
}

/** As the library writes them (`in_units` in embedding/budget.py). */
function inUnits(bytes) {
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["KB", 1e3]]) {
    const value = bytes / size;
    if (value >= 0.9995) return `${value >= 999.5 ? Math.round(value) : value.toPrecision(3)} ${unit}`;
  }
  return `${bytes} B`;
}
