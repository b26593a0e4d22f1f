package accel

import (
	_ "html/template"
	_ "text/template"
	_ "text/template/parse"
)
