package cli

func test() { go work() }
