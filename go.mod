module github.com/gpurdma/gpurdma

go 1.26
