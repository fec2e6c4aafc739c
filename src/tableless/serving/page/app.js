// The page: the address says what is looked at, and everything follows from it.

import { addressOf, nextCount, readView, updateLinks } from "./address.js";
import { ItemList, linkAsButton, listOf, textIn } from "./item_list.js";
import { ItemMap } from "./item_map.js";
import { ItemSearch } from "./item_search.js";
import { ModelFacts } from "./model_facts.js";
import { NewItem } from "./new_item.js";
import { ask, useToken } from "./server.js";

const element = (id) => document.getElementById(id);
const titles = new Map(); // of items, from whatever answer named them

const facts = new ModelFacts(element("facts"), element("summary"));
const map = new ItemMap(element("map"), (id) => go({ item: id }));
const onPoint = (id) => map.point(id);
const recommendations = new ItemList(element("recommendations"), { onPoint });
const neighbors = new ItemList(element("neighbors"), { onPoint });
const search = new ItemSearch(element("item-form"), ({ id, title }) => {
  learn([{ id, title }]);
  go({ item: id });
});

const newItem = new NewItem(element("new-item"), ({ id, title }) => {
  titles.delete(id);
  learn([{ id, title }]);
  if (view.item === id) showNeighbors();
  else go({ item: id });
});

let view = readView();

/** Change some of what is looked at. */
function go(change) {
  location.hash = addressOf({ ...view, ...change });
}

async function showRecommendations() {
  const { user, count } = view;
  recommendations.heading = user ? `For user ${user}` : "Recommendations";
  map.mark({ recommended: [] });
  const load = async (signal) => {
    if (!user) return suggestedUsers();
    const { items, known } = await ask("recommend", { user, count }, signal);
    const rows = learn(items.map(({ item, title, score }) => ({ id: item, title, value: score.toFixed(2) })));
    map.mark({ recommended: rows.map(({ id }) => id) });
    return [...novelty(known, "user"), ...answer(rows, "Best first; the score is a logit.")];
  };
  const isAnswered = await recommendations.fill(load, (error) => explained(error, "user", user, showRecommendations));
  recommendations.mark(view.item);
  if (user && isAnswered) announce(`Recommendations for user ${user}.`);
}

async function showNeighbors() {
  const { item, count } = view;
  map.mark({ chosen: item, neighbors: [] });
  recommendations.mark(item);
  nameChosen();
  const load = async (signal) => {
    if (!item) return popularItems(signal);
    const [answered] = await Promise.all([ask("neighbors", { id: item, count }, signal), findTitle(item, signal)]);
    const rows = answered.neighbors.map(({ id, title, similarity }) => ({ id, title, value: similarity.toFixed(3) }));
    map.mark({ neighbors: learn(rows).map(({ id }) => id) });
    return [...novelty(answered.known, "item"), ...answer(rows, "Nearest first, by the cosine of their vectors.")];
  };
  const isAnswered = await neighbors.fill(load, (error) => explained(error, "item", item, showNeighbors));
  if (!item || view.item !== item) return;
  nameChosen();
  if (isAnswered) announce(`Neighbours of ${nameOf(item)}.`);
}

function nameChosen() {
  neighbors.heading = view.item ? `Near ${nameOf(view.item)}` : "Neighbours";
  search.text = view.item ? nameOf(view.item) : "";
  const about = [view.item && nameOf(view.item), view.user && `user ${view.user}`].filter(Boolean);
  document.title = [...about, "tableless"].join(" · ");
}

function answer(rows, meaning) {
  const count = rows.length === view.count ? nextCount(view.count) : null;
  const nodes = [textIn("p", meaning, "meaning"), listOf(rows)];
  if (count) nodes.push(linkAsButton("Show more", { count }));
  return nodes;
}

/** An id that the model has not been trained on is marked as new. Null: nobody can tell. */
function novelty(known, side) {
  return known === false ? [textIn("p", `New: this ${side} is not in the data that the model knows.`, "new")] : [];
}

function suggestedUsers() {
  const examples = facts.latest?.example_users ?? [];
  const known = (examples.length ? examples : ["1", "42"]).map((user) => [`User ${user}`, user]);
  const isOpen = facts.latest?.answers_new_ids;
  const users = isOpen ? [...known, ["Someone new", "1000000007"]] : known;
  const sentence = isOpen
    ? "Type a user’s id, or try one of these: whoever is new gets an answer too."
    : `Type a user’s id, or try one of these${examples.length ? "" : ", if your data has them"}.`;
  const links = textIn("p", "", "suggestions");
  links.append(...users.map(([text, user]) => linkAsButton(text, { user })));
  return [textIn("p", sentence, "meaning"), links];
}

async function popularItems(signal) {
  const { items } = await ask("items", { query: "", count: view.count }, signal);
  const times = (actions) => actions?.toLocaleString("en") ?? "";
  const rows = learn(items.map(({ item, title, actions }) => ({ id: item, title, value: times(actions) })));
  return answer(rows, "Choose an item to see which lie near it. These were chosen most often:");
}

/** One sentence, and a way on. */
function explained(error, side, id, tryAgain) {
  if (error.status === undefined) throw error; // ours: the console should have it
  const model = facts.latest;
  let sentence = error.message;
  if (error.status === 404 && model?.answers_new_ids === false) {
    sentence = `There is no ${side} ${id} in the data that this model was trained on, `;
    sentence += `and its scheme (${model.scheme}) knows no others.`;
  }
  const paragraph = textIn("p", sentence, "problem");
  paragraph.setAttribute("role", "alert");
  if (!error.mayPass) return [paragraph];
  const button = textIn("button", "Try again");
  button.addEventListener("click", tryAgain);
  return [paragraph, button];
}

function learn(rows) {
  for (const { id, title } of rows) if (title) titles.set(id, title);
  return rows;
}

function nameOf(id) {
  return titles.get(id) ?? id;
}

/** The title of an item that only the address has named. Without one it goes by its id. */
async function findTitle(id, signal) {
  if (titles.has(id)) return;
  const { items } = await ask("items", { query: id, count: 100 }, signal);
  learn(items.filter(({ item }) => item === id).map(({ item, title }) => ({ id: item, title })));
}

function announce(text) {
  element("announcement").textContent = text;
}

async function showMap() {
  try {
    const { points } = await ask("map");
    map.show(learn(points.map(({ item, ...place }) => ({ id: item, ...place }))));
    nameChosen();
  } catch (error) {
    element("map-caption").textContent = error.message;
  }
}

function askForToken(sentence) {
  element("page").hidden = true;
  element("token-form").hidden = false;
  element("token-sentence").textContent = sentence;
  element("token").focus();
}

element("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  useToken(element("token").value);
  location.reload();
});

element("user-form").addEventListener("submit", (event) => {
  event.preventDefault();
  go({ user: element("user").value.trim() });
});

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address belongs to the view
  element("main").focus();
});

addEventListener("hashchange", () => {
  const before = view;
  view = readView();
  updateLinks();
  nameChosen();
  if (view.user !== before.user) element("user").value = view.user ?? "";
  const isOtherCount = view.count !== before.count;
  if (view.user !== before.user || isOtherCount) showRecommendations();
  if (view.item !== before.item || isOtherCount) showNeighbors();
  const isChosenOnMap = document.activeElement === document.querySelector("canvas"); // and is seen there
  if (view.item && view.item !== before.item && !isChosenOnMap) neighbors.bringIntoView();
});

if (view.user) element("user").value = view.user; // before the first wait, during which somebody may type
try {
  await facts.load();
} catch (error) {
  if (error.status === 401) askForToken(error.message);
}
if (element("token-form").hidden) {
  facts.watch();
  newItem.show(facts.latest ?? {});
  showRecommendations();
  showNeighbors();
  showMap();
}
