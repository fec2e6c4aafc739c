// Items on a plane: a canvas that can be read, pointed at, touched and walked through with the arrow keys.

import { drawLabels, drawMark, drawPoints } from "./map_drawing.js";

const MARGIN = 22;
const REACH = { mouse: 14, touch: 30 }; // pixels from a point at which it is meant
const LABELLED = 60; // popular items that get a name where there is room, while nothing is chosen

/** Points are {id, x, y, title}, the most popular first. Calls `onChoose(id)`. */
export class ItemMap {
  #canvas;
  #caption;
  #points = [];
  #byId = new Map();
  #marks = { chosen: null, neighbors: [], recommended: [] };
  #pointed = null;

  constructor(section, onChoose) {
    this.#canvas = section.querySelector("canvas");
    this.#caption = section.querySelector(".caption");
    const choose = (point) => point && onChoose(point.id);
    this.#canvas.addEventListener("pointermove", (event) => this.#pointAt(this.#nearest(event)));
    this.#canvas.addEventListener("pointerleave", () => this.#pointAt(null));
    this.#canvas.addEventListener("click", (event) => choose(this.#nearest(event)));
    this.#canvas.addEventListener("blur", () => this.#pointAt(null));
    this.#canvas.addEventListener("keydown", (event) => {
      const direction = DIRECTIONS[event.key];
      if (direction) this.#pointAt(this.#next(direction));
      else if (event.key === "Enter") choose(this.#pointed);
      else if (event.key === "Escape") this.#pointAt(null);
      else return;
      event.preventDefault();
    });
    new ResizeObserver(() => this.#fit()).observe(this.#canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#draw());
  }

  show(points) {
    this.#points = points.map((point) => ({ ...point, left: 0, top: 0 })); // left, top: pixels on the canvas
    this.#byId = new Map(this.#points.map((point) => [point.id, point]));
    this.#fit();
  }

  /** Highlight items by id; those that are not on the map are left out. */
  mark(marks) {
    this.#marks = { ...this.#marks, ...marks };
    this.#draw();
  }

  /** Show where an item lies (null: none), as if it had been pointed at. */
  point(id) {
    this.#pointAt(this.#byId.get(id) ?? null);
  }

  titleOf(id) {
    return this.#byId.get(id)?.title ?? null;
  }

  /** Scale the points to the canvas, and its pixels to the screen's. */
  #fit() {
    const { clientWidth: width, clientHeight: height } = this.#canvas;
    this.#canvas.width = Math.round(width * devicePixelRatio);
    this.#canvas.height = Math.round(height * devicePixelRatio);
    const toLeft = scale(this.#points.map(({ x }) => x), MARGIN, width - MARGIN);
    const toTop = scale(this.#points.map(({ y }) => y), height - MARGIN, MARGIN);
    for (const point of this.#points) Object.assign(point, { left: toLeft(point.x), top: toTop(point.y) });
    this.#draw();
  }

  #pointAt(point) {
    if (point === this.#pointed) return;
    this.#pointed = point;
    this.#canvas.classList.toggle("pointing", point !== null);
    this.#draw();
  }

  #nearest({ offsetX, offsetY, pointerType }) {
    let nearest = null;
    let least = REACH[pointerType] ?? REACH.mouse;
    for (const point of this.#points) {
      const distance = Math.hypot(point.left - offsetX, point.top - offsetY);
      if (distance < least) [nearest, least] = [point, distance];
    }
    return nearest;
  }

  /** The nearest point within 45° of a direction, seen from the one pointed at, the chosen one or the most popular. */
  #next({ right, down }) {
    const from = this.#pointed ?? this.#byId.get(this.#marks.chosen);
    if (!from) return this.#points[0] ?? null;
    let nearest = from;
    let least = Infinity;
    for (const point of this.#points) {
      const across = point.left - from.left;
      const along = point.top - from.top;
      const forward = across * right + along * down;
      const aside = Math.abs(across * down) + Math.abs(along * right);
      if (forward > 0.5 && aside <= forward && forward + aside < least) [nearest, least] = [point, forward + aside];
    }
    return nearest;
  }

  #draw() {
    const found = (ids) => ids.map((id) => this.#byId.get(id)).filter(Boolean);
    const chosen = this.#byId.get(this.#marks.chosen) ?? null;
    const [neighbors, recommended] = [found(this.#marks.neighbors), found(this.#marks.recommended)];
    const context = this.#canvas.getContext("2d");
    const style = getComputedStyle(this.#canvas);
    context.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
    context.clearRect(0, 0, this.#canvas.width, this.#canvas.height);
    drawPoints(context, style, this.#points, { faint: chosen !== null || recommended.length > 0 });
    for (const point of recommended) drawMark(context, style, point, "recommended");
    for (const point of neighbors) drawMark(context, style, point, "neighbor");
    if (this.#pointed) drawMark(context, style, this.#pointed, "pointed");
    if (chosen) drawMark(context, style, chosen, "chosen");
    const sure = [this.#pointed, chosen].filter(Boolean);
    const marked = [...sure, ...neighbors, ...recommended];
    drawLabels(context, style, marked.length ? marked : this.#points.slice(0, LABELLED), { sure: sure.length });
    this.#describe(chosen);
  }

  #describe(chosen) {
    if (!this.#points.length) return;
    const point = this.#pointed ?? chosen;
    if (point) this.#caption.textContent = point.title ? `${point.title} · item ${point.id}` : `Item ${point.id}`;
    else if (this.#marks.chosen) this.#caption.textContent = "The chosen item is not on the map.";
    else this.#caption.textContent = `The ${this.#points.length.toLocaleString("en")} most popular items`;
  }
}

const DIRECTIONS = {
  ArrowLeft: { right: -1, down: 0 },
  ArrowRight: { right: 1, down: 0 },
  ArrowUp: { right: 0, down: -1 },
  ArrowDown: { right: 0, down: 1 },
};

/** A function that takes the values' range to [from, to]; to its middle where they are all the same. */
function scale(values, from, to) {
  const least = Math.min(...values);
  const range = Math.max(...values) - least;
  return (value) => (range > 0 ? from + ((value - least) / range) * (to - from) : (from + to) / 2);
}
