// A panel with a heading and rows of items, each a link to the view in which that item is chosen.

import { lead } from "./address.js";

/** A panel that is filled again whenever its question changes. */
export class ItemList {
  #section;
  #heading;
  #body = document.createElement("div");
  #loading = null;

  constructor(section, { onPoint }) {
    this.#section = section;
    this.#heading = section.querySelector("h2");
    section.append(this.#body);
    const pointAt = (event) => onPoint(event.target.closest("a[data-id]")?.dataset.id ?? null);
    for (const name of ["pointerover", "focusin"]) this.#body.addEventListener(name, pointAt);
    for (const name of ["pointerleave", "focusout"]) this.#body.addEventListener(name, () => onPoint(null));
  }

  /** Wait for `load(signal)` to give nodes for the panel; what was there before stays until then.
   *
   * A later call overtakes an earlier one. Returns whether there was an answer and it is shown; `explain(error)` gives
   * the nodes if there was none.
   */
  async fill(load, explain) {
    this.#loading?.abort();
    const loading = (this.#loading = new AbortController());
    this.#section.setAttribute("aria-busy", "true");
    let nodes;
    let isAnswered = true;
    try {
      nodes = await load(loading.signal);
    } catch (error) {
      if (loading.signal.aborted) return false;
      nodes = explain(error);
      isAnswered = false;
    }
    if (loading.signal.aborted) return false;
    this.#section.removeAttribute("aria-busy");
    const hadFocus = this.#body.contains(document.activeElement);
    this.#body.replaceChildren(...nodes);
    if (hadFocus) this.#heading.focus({ preventScroll: true }); // what had the focus is gone
    return isAnswered;
  }

  /** Mark the row of the chosen item. */
  mark(id) {
    for (const link of this.#body.querySelectorAll("a[data-id]")) {
      if (link.dataset.id === id) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  }

  set heading(text) {
    this.#heading.textContent = text;
  }

  /** On a phone the panel may be far below what was touched. */
  bringIntoView() {
    const { top } = this.#heading.getBoundingClientRect();
    if (top < 0 || top > innerHeight - 120) this.#section.scrollIntoView({ block: "start" });
  }
}

/** Rows are {id, title, value}: `value` is text, shown at the end of the row. */
export function listOf(rows) {
  const list = document.createElement("ol");
  list.className = "items";
  for (const { id, title, value } of rows) {
    const link = document.createElement("a");
    lead(link, { item: id });
    link.dataset.id = id;
    link.append(textIn("span", title ?? id, "name"), textIn("span", value, "value"));
    const row = document.createElement("li");
    row.append(link);
    list.append(row);
  }
  return list;
}

/** An element that holds text and nothing else, whatever the text looks like. */
export function textIn(tag, text, className = "") {
  const element = document.createElement(tag);
  element.textContent = text;
  element.className = className;
  return element;
}

/** A link that looks like a button. */
export function linkAsButton(text, change) {
  const link = textIn("a", text, "button");
  lead(link, change);
  return link;
}
