"use strict";
const $ = id => document.getElementById(id);
const DATA = JSON.parse($("data").textContent);
const clamp = (index, size) => Math.max(0, Math.min(size - 1, index));

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function placed(made, style) {
  for (const [name, value] of Object.entries(style)) made.style[name] = typeof value === "number" ? `${value}px` : value;
  return made;
}

async function run(start) {
  try {
    await start();
  } catch (error) {
    $("problem").textContent = error.message;
    $("problem").hidden = false;
  }
}
