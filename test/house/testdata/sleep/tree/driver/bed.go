package driver

type bed struct{}

func (bed) Sleep() {}

func rest(time bed) { time.Sleep() }
