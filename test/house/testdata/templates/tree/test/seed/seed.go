package seed

import _ "text/template"
