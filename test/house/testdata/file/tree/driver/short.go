package driver











