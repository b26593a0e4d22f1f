package main

// Another file may be longer.

func flags() {
	print(1)
}
