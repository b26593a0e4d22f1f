module github.com/acceld/acceld/test/chart

go 1.26.0
