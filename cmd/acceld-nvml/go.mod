// The one program of acceld that needs a C compiler and a C library: a module of its own, so that neither is needed for the others.
module github.com/acceld/acceld/cmd/acceld-nvml

go 1.26.0

toolchain go1.26.11

require (
	github.com/NVIDIA/go-nvml v0.13.3-0
	github.com/acceld/acceld v0.0.0
)

replace github.com/acceld/acceld => ../..
