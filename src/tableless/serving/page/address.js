// What is being looked at, kept in the address after the #, so that a view can be linked and the back button works.

const FEWEST = 10;
const MOST = 100;

/** {user, item, count}; user and item are null where none is chosen. */
export function readView() {
  const parameters = new URLSearchParams(location.hash.slice(1));
  const count = Number(parameters.get("count") ?? FEWEST);
  return {
    user: parameters.get("user") || null,
    item: parameters.get("item") || null,
    count: Number.isInteger(count) && count >= 1 && count <= MOST ? count : FEWEST,
  };
}

/** The address of a view, as a link has it. */
export function addressOf({ user, item, count }) {
  const parameters = new URLSearchParams();
  if (user) parameters.set("user", user);
  if (item) parameters.set("item", item);
  if (count > FEWEST) parameters.set("count", count);
  return `#${parameters}`;
}

/** The number of answers to ask for next; null where there are no more. */
export function nextCount(count) {
  return count < MOST ? Math.min(count + 20, MOST) : null;
}

/** Let a link change some of the view, whatever the rest of it is by then. */
export function lead(link, change) {
  link.dataset.change = new URLSearchParams(change);
  link.href = addressOf({ ...readView(), ...change });
}

/** To be called when the view has changed. */
export function updateLinks() {
  for (const link of document.querySelectorAll("a[data-change]")) {
    lead(link, Object.fromEntries(new URLSearchParams(link.dataset.change)));
  }
}
