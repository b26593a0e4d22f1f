"use strict";
// Nothing in this file has an ampersand or an opening angle bracket: the page is well-formed XML, too.
(function () {
  var root = document.documentElement;
  var skew = 0; // what this browser's clock is ahead of the one that wrote the page, in milliseconds
  var failures = 0;
  var asking = false;

  // span says a duration as the program that wrote the page does.
  function span(ms) {
    var s = Math.max(0, Math.floor(ms / 1000));
    var d = Math.floor(s / 86400), h = Math.floor(s % 86400 / 3600), m = Math.floor(s % 3600 / 60);
    return d > 0 ? d + " d " + h + " h" : h > 0 ? h + " h " + m + " min" : m > 0 ? m + " min" : s + " s";
  }

  function write(node, text) {
    if (node.textContent !== text) node.textContent = text;
  }

  function ages() {
    var now = Date.now() - skew;
    document.querySelectorAll("time[data-ago]").forEach(function (t) { write(t, span(now - t.dataset.ago) + " ago"); });
    document.querySelectorAll("time[data-in]").forEach(function (t) { write(t, t.dataset.in > now ? "in " + span(t.dataset.in - now) : "now"); });
  }

  // become makes a like b and leaves alone what is the same: selection, focus, and what the reader has opened.
  function become(a, b) {
    if (a.nodeType !== b.nodeType || a.nodeName !== b.nodeName || a.id !== b.id) {
      a.replaceWith(document.importNode(b, true));
      return;
    }
    if (a.nodeType === Node.TEXT_NODE) {
      if (a.data !== b.data) a.data = b.data;
      return;
    }
    if (a.nodeType !== Node.ELEMENT_NODE) return;
    attributes(a, b);
    var old = Array.from(a.childNodes), now = Array.from(b.childNodes);
    now.forEach(function (child, i) {
      if (old.length > i) become(old[i], child);
      else a.appendChild(document.importNode(child, true));
    });
    old.slice(now.length).forEach(function (child) { child.remove(); });
  }

  function attributes(a, b) {
    var kept = a.nodeName === "DETAILS" ? ["open"] : [];
    Array.from(a.attributes).forEach(function (x) {
      if (!b.hasAttribute(x.name)) if (!kept.includes(x.name)) a.removeAttribute(x.name);
    });
    Array.from(b.attributes).forEach(function (x) {
      if (a.getAttribute(x.name) !== x.value) if (!kept.includes(x.name)) a.setAttribute(x.name, x.value);
    });
  }

  function take(text) {
    var next = new DOMParser().parseFromString(text, "text/html");
    if (!next.documentElement.dataset.tag) throw new Error("another page");
    attributes(root, next.documentElement);
    document.title = next.title;
    ["link[rel=icon]", "header", "main"].forEach(function (part) {
      become(document.querySelector(part), next.querySelector(part));
    });
    skew = Date.now() - root.dataset.now;
  }

  function say(text) {
    write(document.getElementById("live"), text);
  }

  async function ask() {
    if (asking) return;
    asking = true;
    while (!document.hidden) {
      var begun = Date.now(), pause = 500;
      try {
        var answer = await fetch(location.href, {
          headers: {"If-None-Match": root.dataset.tag, "Prefer": "wait=20"}, cache: "no-store", signal: AbortSignal.timeout(40000),
        });
        if (answer.status === 200) take(await answer.text());
        else if (answer.status !== 304) throw new Error("status " + answer.status);
        else if (2000 > Date.now() - begun) pause = 5000; // nobody may wait there now
        failures = 0;
        root.classList.remove("stale");
        say("This page changes by itself.");
      } catch (e) {
        failures++;
        pause = Math.min(30000, 1000 * Math.pow(2, failures));
        root.classList.add("stale");
        say("No answer: what is shown is old. It is asked again.");
      }
      ages();
      await new Promise(function (done) { setTimeout(done, pause); });
    }
    asking = false;
  }

  skew = Date.now() - root.dataset.now;
  document.addEventListener("visibilitychange", ask);
  setInterval(ages, 5000);
  ask();
})();
