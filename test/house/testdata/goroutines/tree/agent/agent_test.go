package agent

func test() { go test() }
