module github.com/acceld/acceld/packaging/packages

go 1.26.0
