module inkstone.example/inkstone

go 1.25
