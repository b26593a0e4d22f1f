package exporter

import _ "text/template"
