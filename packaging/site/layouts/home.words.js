{{- /* An entry for each section of each page: the page's title, the heading, where it is, its text. */ -}}
{{- $entries := slice -}}
{{- range where site.Pages "Layout" "" -}}
  {{- $page := partial "title.html" . -}}
  {{- $to := strings.TrimPrefix "/" .RelPermalink -}}
  {{- $html := .Content | replaceRE `<a class="anchor".*?</a>` "" | replaceRE `</(td|th|p|li|tr|div|code|pre|summary)>` "$0 " -}}
  {{- range after 1 (split ($html | replaceRE `<h([1-6]) id="?([^">]*)"?>` "\x00$2\x01") "\x00") -}}
    {{- $id := index (split . "\x01") 0 -}}
    {{- $rest := index (split . "\x01") 1 -}}
    {{- $heading := index (split $rest "</h") 0 | plainify | htmlUnescape | strings.TrimSpace -}}
    {{- $text := delimit (after 1 (split $rest "</h")) " " | replaceRE `^[1-6]>` "" | plainify | htmlUnescape | replaceRE `\s+` " " | strings.TrimSpace -}}
    {{- $entries = $entries | append (dict "page" $page "heading" $heading "to" (printf "%s#%s" $to $id) "text" $text) -}}
  {{- end -}}
{{- end -}}
window.acceldPages = {{ $entries | jsonify }};
