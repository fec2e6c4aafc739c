// A form for an item that the model has never seen: its id, its title, and a field for each feature.

import { textIn } from "./item_list.js";
import { send } from "./server.js";

const HINTS = { category: "A word", tags: "Several, as in the data", number: "A number" };

/** Shows the form if the run has item features. `onAdded` is given the id and the title. */
export class NewItem {
  #place;
  #onAdded;

  constructor(place, onAdded) {
    this.#place = place;
    this.#onAdded = onAdded;
  }

  show({ features, kinds }) {
    const columns = features?.item?.filter(({ kind }) => kind in HINTS) ?? [];
    this.#place.hidden = !columns.length;
    if (!columns.length) return;
    const form = document.createElement("form");
    form.append(
      field("id", "Id", kinds.item === "integer" ? "A whole number" : "Any text", { required: true }),
      field("title", "Title", "For this page"),
      ...columns.filter(({ name }) => !["id", "title"].includes(name)).map(({ name, kind }) => field(name, name, HINTS[kind])),
    );
    const problem = textIn("p", "", "problem");
    problem.setAttribute("role", "alert");
    problem.hidden = true;
    form.append(textIn("button", "Add it"), problem);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#add(form, problem, columns, kinds);
    });
    this.#place.querySelector("form")?.remove();
    this.#place.append(form);
  }

  async #add(form, problem, columns, kinds) {
    const typed = Object.fromEntries([...new FormData(form)].map(([name, value]) => [name, value.trim()]));
    const { id, title, ...values } = typed;
    const row = title ? { title } : {};
    for (const { name, kind } of columns) {
      if (values[name]) row[name] = kind === "number" && !isNaN(values[name]) ? Number(values[name]) : values[name];
    }
    problem.hidden = true;
    try {
      if (kinds.item === "integer" && !/^-?\d+$/.test(id)) throw new Error("Ids are whole numbers in this data.");
      await send("items", bodyOf(id, row, kinds.item));
    } catch (error) {
      problem.textContent = error.message;
      problem.hidden = false;
      return;
    }
    form.reset();
    this.#onAdded({ id, title: title || null });
  }
}

/** Ids may be any int64, which no number of JavaScript holds: its digits go out as they were typed. */
function bodyOf(id, row, kind) {
  const rest = JSON.stringify(row).slice(1);
  const digits = kind === "integer" ? id.replace(/^(-?)0+(?=\d)/, "$1") : JSON.stringify(id);
  return `{"id": ${digits}${rest === "}" ? "" : ", "}${rest}`;
}

function field(name, text, hint, attributes = {}) {
  const label = textIn("label", text);
  const input = Object.assign(document.createElement("input"), { name, placeholder: hint, maxLength: 500, ...attributes });
  input.autocomplete = "off";
  label.append(input);
  return label;
}
