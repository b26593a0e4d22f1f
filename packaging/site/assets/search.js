"use strict";
// The search looks for every word of the question in the sections of all pages (search-index.js). It asks no server.
(function () {
  var most = 40; // results that are shown
  var input = document.getElementById("query"), found = document.getElementById("found");
  var results = document.getElementById("results");
  var sections = window.acceldPages.map(function (s) {
    return { s: s, page: s.page.toLowerCase(), heading: s.heading.toLowerCase(), text: s.text.toLowerCase() };
  });

  function words(question) {
    return question.toLowerCase().split(/\s+/).filter(Boolean);
  }

  // score is how well a section answers, 0 for not at all. A word in a heading says more than one in the text.
  function score(section, asked) {
    var sum = 0;
    for (var i = 0; i < asked.length; i++) {
      var word = asked[i], points = 0;
      if (section.heading === word) points += 40;
      if (section.heading.includes(word)) points += 20;
      if (section.page.includes(word)) points += 8;
      points += Math.min(section.text.split(word).length - 1, 5);
      if (points === 0) return 0;
      sum += points;
    }
    return sum;
  }

  // marked adds text to a node, with the words of the question in it marked.
  function marked(node, text, asked) {
    var low = text.toLowerCase(), at = 0;
    while (at < text.length) {
      var next = -1, length = 0;
      asked.forEach(function (word) {
        var i = low.indexOf(word, at);
        if (i >= 0 && (next < 0 || i < next)) { next = i; length = word.length; }
      });
      if (next < 0) break;
      node.append(text.slice(at, next));
      var mark = document.createElement("mark");
      mark.textContent = text.slice(next, next + length);
      node.append(mark);
      at = next + length;
    }
    node.append(text.slice(at));
  }

  // best is the place in a section where most of the words stand together.
  function best(section, asked) {
    var place = 0, most = 0;
    asked.forEach(function (word) {
      for (var i = section.text.indexOf(word); i >= 0; i = section.text.indexOf(word, i + word.length)) {
        var near = section.text.slice(Math.max(0, i - 60), i + 160);
        var n = asked.filter(function (w) { return near.includes(w); }).length;
        if (n > most) { most = n; place = i; }
        if (most === asked.length) return;
      }
    });
    return { at: place, found: most > 0 };
  }

  // around cuts what is near a place out of a text.
  function around(text, at) {
    var from = at < 80 ? 0 : text.lastIndexOf(" ", at - 60) + 1;
    var cut = text.slice(from, from + 220);
    return (from > 0 ? "… " : "") + cut + (from + 220 < text.length ? " …" : "");
  }

  // scrolled is what makes browsers scroll to the word at a place (URL fragment text directives).
  function scrolled(text, at) {
    var from = text.lastIndexOf(" ", at) + 1, to = text.indexOf(" ", at);
    var word = text.slice(from, to < 0 ? text.length : to).replace(/^[^A-Za-z0-9]+|[^A-Za-z0-9]+$/g, "");
    return word === "" ? "" : ":~:text=" + encodeURIComponent(word).replace(/-/g, "%2D");
  }

  function item(section, asked) {
    var li = document.createElement("li"), a = document.createElement("a"), p = document.createElement("p");
    var place = best(section, asked);
    a.href = section.s.to + (place.found ? scrolled(section.s.text, place.at) : "");
    marked(a, section.s.heading, asked);
    li.append(a);
    if (section.s.page !== section.s.heading) {
      var small = document.createElement("small");
      small.textContent = " in " + section.s.page;
      li.append(small);
    }
    marked(p, around(section.s.text, place.at), asked);
    li.append(p);
    return li;
  }

  function search() {
    var asked = words(input.value);
    results.replaceChildren();
    if (asked.length === 0) { found.textContent = ""; return; }
    var hits = sections.map(function (s) { return { s: s, score: score(s, asked) }; })
      .filter(function (h) { return h.score > 0; })
      .sort(function (a, b) { return b.score - a.score; });
    found.textContent = hits.length === 0 ? "Nothing is found. Try fewer or shorter words."
      : hits.length === 1 ? "1 section" : hits.length + " sections" + (hits.length > most ? ", the best " + most + " of them:" : "");
    hits.slice(0, most).forEach(function (h) { results.append(item(h.s, asked)); });
  }

  input.value = new URLSearchParams(location.search).get("q") || "";
  input.addEventListener("input", search);
  input.form.addEventListener("submit", function (e) { e.preventDefault(); search(); });
  search();
  input.focus();
})();
