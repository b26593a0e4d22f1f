package agent

func run() { go work() }
