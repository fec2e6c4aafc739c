// How the map's points, marks and names look. Colours are the style sheet's, so that they follow light and dark.

const GAP = 13; // between a point's middle and its name

export function drawPoints(context, style, points, { faint }) {
  context.fillStyle = style.getPropertyValue("--point");
  context.globalAlpha = faint ? 0.45 : 0.8;
  for (const { left, top } of points) disc(context, left, top, 2);
  context.globalAlpha = 1;
}

/** Kinds differ in shape and not only in colour. */
export function drawMark(context, style, { left, top }, kind) {
  context.fillStyle = style.getPropertyValue(`--${kind}`);
  context.strokeStyle = style.getPropertyValue("--panel");
  context.lineWidth = 1.5;
  if (kind === "recommended") {
    context.beginPath();
    for (const [x, y] of [[0, -6], [6, 0], [0, 6], [-6, 0]]) context.lineTo(left + x, top + y);
    context.closePath();
    context.fill();
    context.stroke();
  } else if (kind === "neighbor") {
    disc(context, left, top, 5);
    context.stroke();
  } else {
    disc(context, left, top, 4);
    context.strokeStyle = context.fillStyle;
    context.lineWidth = 2;
    context.beginPath();
    context.arc(left, top, 8, 0, 2 * Math.PI);
    context.stroke();
  }
}

/** Names beside their points, the first ones first, as many as fit without lying on one another or on a point.
 *
 * The first `sure` are named in any case.
 */
export function drawLabels(context, style, points, { sure }) {
  const { clientWidth: right, clientHeight: bottom } = context.canvas;
  const distinct = [...new Set(points)];
  const taken = distinct.map(({ left, top }) => ({ left: left - 6, right: left + 6, top: top - 6, bottom: top + 6 }));
  context.font = `12px ${style.fontFamily}`;
  context.textBaseline = "middle";
  context.lineJoin = "round";
  context.lineWidth = 4;
  context.strokeStyle = style.getPropertyValue("--panel");
  context.fillStyle = style.getPropertyValue("--ink");
  distinct.forEach(({ id, title, left, top }, at) => {
    const text = shortened(title ?? id);
    const width = context.measureText(text).width;
    const places = [left + GAP, left - GAP - width].map((start) => ({
      left: start,
      right: start + width,
      top: top - 9,
      bottom: top + 9,
    }));
    const within = places.filter((box) => box.left > 0 && box.right < right && box.top > 0 && box.bottom < bottom);
    const place = within.find((box) => !taken.some(overlaps(box))) ?? (at < sure ? within[0] : null);
    if (!place) return;
    taken.push(place);
    context.strokeText(text, place.left, top + 1);
    context.fillText(text, place.left, top + 1);
  });
}

function shortened(text) {
  return text.length > 32 ? `${text.slice(0, 31).trimEnd()}…` : text;
}

function overlaps(box) {
  return (other) =>
    box.left < other.right && other.left < box.right && box.top < other.bottom && other.top < box.bottom;
}

function disc(context, left, top, radius) {
  context.beginPath();
  context.arc(left, top, radius, 0, 2 * Math.PI);
  context.fill();
}
