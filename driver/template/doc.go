// Package template fills the templates of a definition with the facts of one machine. It reads and writes nothing. It
// never treats an unknown fact as empty, because that would select another driver. It returns a problem instead:
// APIUnreachable for an unknown fact, DefinitionInvalid for an error in the definition.
package template
