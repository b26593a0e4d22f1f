package yamlfile

import (
	"fmt"
	"slices"
	"strings"
)

// Fault is one error in a file.
type Fault struct {
	// Line is the line in the file, from 1; 0 if the fault concerns the whole file.
	Line int
	// Field is the path of the field, such as "driver.modules[0].name"; empty if the fault concerns the whole file.
	Field string
	// Message says what is wrong, and what to write.
	Message string
}

// String returns "field: message".
func (f Fault) String() string {
	if f.Field == "" {
		return f.Message
	}
	return f.Field + ": " + f.Message
}

// At returns "line 3: field: message"; without the line if it is not known.
func (f Fault) At() string {
	if f.Line == 0 {
		return f.String()
	}
	return fmt.Sprintf("line %d: %s", f.Line, f)
}

// Join returns faults as one sentence, each with its line.
func Join(faults []Fault) string {
	texts := make([]string, len(faults))
	for i, f := range faults {
		texts[i] = f.At()
	}
	return strings.Join(texts, "; ")
}

// FaultOf returns what a checker says as "<field>: <sentence>" as a fault.
func FaultOf(text string) Fault {
	field, message, ok := strings.Cut(text, ": ")
	if !ok || strings.ContainsAny(field, " \"") {
		return Fault{Message: text}
	}
	return Fault{Field: field, Message: message}
}

// Places are the lines of a file's fields, by path.
type Places map[string]int

// Line returns the line of a field, or of its nearest parent that is in the file; 0 if there is none.
func (p Places) Line(field string) int {
	for field != "" {
		if n, ok := p[field]; ok {
			return n
		}
		field = field[:max(strings.LastIndexAny(field, ".["), 0)]
	}
	return 0
}

// Locate adds their lines to faults that were found later, and sorts them by line.
func (p Places) Locate(faults []Fault) []Fault {
	for i := range faults {
		if faults[i].Line == 0 {
			faults[i].Line = p.Line(faults[i].Field)
		}
	}
	slices.SortStableFunc(faults, func(a, b Fault) int { return a.Line - b.Line })
	return faults
}
