package driver

func short() {
	print(1)
	print(2)
}

func long() {
	print(1)
	print(2)
	print(3)
}
