// Package yamlfile reads the YAML files that people write into Go types, strictly: every error has its line, the path
// of its field, what was probably meant, and what to write. Definitions, configurations and policies use it alike. It
// knows the vocabulary of package accel, and may not read files itself.
package yamlfile
