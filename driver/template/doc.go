// Package template fills what a definition leaves open: its templates, with the facts of one machine. It reads nothing
// and writes nothing. What is not known is never taken for empty, because another driver would come of it: then the
// problem says so (APIUnreachable), or that the definition is wrong (DefinitionInvalid).
package template
