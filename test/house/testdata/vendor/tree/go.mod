module example.com/house
