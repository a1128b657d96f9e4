module inkstone.example/first

go 1.25

require inkstone.example/inkstone v0.0.0

replace inkstone.example/inkstone => ../../doors/go
