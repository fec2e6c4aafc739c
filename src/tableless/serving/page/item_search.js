// The field for an item: a combobox that suggests items while one types (the pattern of the ARIA practices guide).

import { ask } from "./server.js";

const PAUSE = 120; // milliseconds without a key before the server is asked
const MOST = 12;

/** Calls `onChoose({id, title})` with one of the server's items, or with what was typed, taken for an id ("": none). */
export class ItemSearch {
  #form;
  #field;
  #list;
  #onChoose;
  #options = []; // {id, title, label, note}
  #active = -1;
  #timer = 0;
  #asking = null;
  #chosenText = "";
  #isTyping = false;

  constructor(form, onChoose) {
    this.#form = form;
    this.#field = form.querySelector("input");
    this.#list = form.querySelector("ul");
    this.#onChoose = onChoose;
    this.#field.addEventListener("input", () => this.#suggestSoon());
    this.#field.addEventListener("keydown", (event) => this.#onKey(event));
    this.#field.addEventListener("focus", () => this.#field.select());
    this.#field.addEventListener("blur", () => this.#close());
    this.#list.addEventListener("mousedown", (event) => event.preventDefault()); // the field keeps the focus
    this.#list.addEventListener("click", (event) => this.#choose(indexOf(event.target)));
    form.addEventListener("submit", (event) => this.#onSubmit(event));
  }

  /** What the field says when nobody is typing. */
  set text(text) {
    this.#chosenText = text;
    if (!this.#isTyping) this.#field.value = text;
  }

  get #isOpen() {
    return !this.#list.hidden;
  }

  #suggestSoon() {
    this.#isTyping = true;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#suggest(), PAUSE);
  }

  /** Show what matches the text; false if another text has been typed meanwhile. */
  async #suggest() {
    clearTimeout(this.#timer);
    this.#asking?.abort();
    const asking = (this.#asking = new AbortController());
    const typed = this.#field.value.trim();
    let found = [];
    try {
      found = (await ask("items", { query: typed, count: MOST }, asking.signal)).items;
    } catch {
      // Without suggestions the text can still be taken for an id, and then the answer says what is wrong.
    }
    if (asking.signal.aborted) return false;
    const optionOf = ({ item, title }) => ({ id: item, title, label: title ?? item, note: title ? item : "" });
    this.#options = found.map(optionOf);
    if (typed && !found.some(({ item }) => item === typed)) {
      this.#options.push({ id: typed, title: null, label: typed, note: "as an id" });
    }
    this.#open();
    return true;
  }

  #open() {
    this.#list.replaceChildren(...this.#options.map(optionElement));
    this.#list.hidden = this.#options.length === 0;
    this.#field.setAttribute("aria-expanded", String(this.#isOpen));
    this.#activate(-1);
  }

  #close() {
    this.#isTyping = false;
    clearTimeout(this.#timer);
    this.#asking?.abort();
    this.#options = [];
    this.#open();
  }

  #activate(index) {
    this.#active = index;
    [...this.#list.children].forEach((option, at) => option.setAttribute("aria-selected", String(at === index)));
    const option = this.#list.children[index];
    if (option) {
      this.#field.setAttribute("aria-activedescendant", option.id);
      option.scrollIntoView({ block: "nearest" });
    } else {
      this.#field.removeAttribute("aria-activedescendant");
    }
  }

  async #onKey(event) {
    if (event.isComposing) return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      const step = event.key === "ArrowDown" ? 1 : -1;
      if (!this.#isOpen) await this.#suggest();
      const places = this.#options.length + 1; // one of them is the field itself
      this.#activate(((this.#active + 1 + step + places) % places) - 1);
    } else if (event.key === "Escape") {
      event.preventDefault();
      if (!this.#isOpen) this.#field.value = this.#chosenText; // the second time
      this.#close();
    }
  }

  async #onSubmit(event) {
    event.preventDefault();
    if (!this.#field.value.trim()) {
      this.#close();
      this.#onChoose({ id: "", title: null });
      return;
    }
    if (this.#active < 0 && !(await this.#suggest())) return; // the list may be that of an older text
    this.#choose(Math.max(this.#active, 0));
  }

  #choose(index) {
    const option = this.#options[index];
    if (!option) return;
    this.#close();
    this.#field.value = option.label;
    this.#onChoose(option);
  }
}

function optionElement({ label, note }, index) {
  const option = document.createElement("li");
  option.id = `item-option-${index}`;
  option.setAttribute("role", "option");
  const name = document.createElement("span");
  name.textContent = label;
  const remark = document.createElement("small");
  remark.textContent = note;
  option.append(name, " ", remark);
  return option;
}

function indexOf(element) {
  const option = element.closest("[role=option]");
  return option ? [...option.parentElement.children].indexOf(option) : -1;
}
