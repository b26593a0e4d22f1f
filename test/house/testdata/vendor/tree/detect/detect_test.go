package detect

const id = "10de"
