"use strict";
// The contents of a page stand beside it where there is room, and then they are open.
(function () {
  var contents = document.querySelector(".contents");
  var wide = matchMedia("(min-width:88rem)");
  if (!contents) return;
  contents.open = wide.matches;
  wide.addEventListener("change", function () { contents.open = wide.matches; });
})();
