// SPDX-License-Identifier: MIT OR Apache-2.0
"use strict";

const root = document.documentElement;

// Colours: the system's, until the reader says otherwise.
const dark = document.getElementById("dark");
const system = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (root.dataset.colours ?? (system.matches ? "dark" : "light")) === "dark";
const showColours = () => dark.setAttribute("aria-pressed", String(isDark()));
dark.addEventListener("click", () => {
  root.dataset.colours = isDark() ? "light" : "dark";
  showColours();
});
system.addEventListener("change", showColours);
showColours();

// Tables: numbers by their value, the rest by the alphabet; what is missing comes last, either way.
const alphabet = new Intl.Collator("en", { numeric: true });

function compare(left, right, numbers, sign) {
  const empty = (key) => key.trim() === "";
  if (empty(left) || empty(right)) return Number(empty(left)) - Number(empty(right));
  return sign * (numbers ? Number(left) - Number(right) : alphabet.compare(left, right));
}

function sort(button) {
  const heading = button.closest("th");
  const table = heading.closest("table");
  const ascending = heading.getAttribute("aria-sort") !== "ascending";
  for (const other of heading.parentElement.children) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", ascending ? "ascending" : "descending");
  const [column, numbers] = [heading.cellIndex, heading.classList.contains("number")];
  const key = (row) => row.cells[column].dataset.key;
  const rows = [...table.tBodies[0].rows];
  rows.sort((left, right) => compare(key(left), key(right), numbers, ascending ? 1 : -1));
  table.tBodies[0].append(...rows);
  document.getElementById("said").textContent =
    `${table.caption.textContent}: by ${button.textContent}, ${ascending ? "ascending" : "descending"}`;
}

for (const button of document.querySelectorAll("thead button")) {
  button.addEventListener("click", () => sort(button));
}

// Figures: the drawing itself goes into the dialog and back, so that its names stay unique.
const dialog = document.getElementById("zoom");
const view = dialog.querySelector(".view");
let home = null;
let zoom = 1;

function resize(factor) {
  zoom = Math.min(8, Math.max(1, zoom * factor));
  view.firstElementChild.style.width = `${100 * zoom}%`;
}

function enlarge(figure) {
  home = figure.querySelector(".drawing");
  home.style.height = `${home.offsetHeight}px`;
  document.getElementById("zoom-name").textContent = home.querySelector("title").textContent;
  view.append(home.firstElementChild);
  figure.querySelector(".enlarge").focus();
  dialog.showModal();
  zoom = 1;
  resize(1);
}

dialog.addEventListener("close", () => {
  view.firstElementChild.style.width = "";
  home.append(view.firstElementChild);
  home.style.height = "";
});
document.getElementById("close").addEventListener("click", () => dialog.close());
document.getElementById("larger").addEventListener("click", () => resize(1.5));
document.getElementById("smaller").addEventListener("click", () => resize(1 / 1.5));
for (const figure of document.querySelectorAll("figure")) {
  figure.querySelector(".enlarge").addEventListener("click", () => enlarge(figure));
  figure.querySelector(".drawing").addEventListener("click", () => enlarge(figure));
}
