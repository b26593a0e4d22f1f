package zag

const name = "zag"
