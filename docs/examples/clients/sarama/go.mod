module publiccases

go 1.23
