// A module of its own: purego links a C library without a C compiler, which the other programs do not need.
module github.com/acceld/acceld/cmd/acceld-prove

go 1.26.0

toolchain go1.26.11

require (
	github.com/acceld/acceld v0.0.0
	github.com/ebitengine/purego v0.11.2
	golang.org/x/sys v0.49.0
)

replace github.com/acceld/acceld => ../..
