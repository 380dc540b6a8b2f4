package main

var imageMutants = []Mutant{
	{
		Name:    "qcow2-data-file",
		Defence: "An image whose data are in another file, which the image names, is refused.",
		File:    "images/header.go",
		Old:     "case features&incompatData != 0:",
		New:     "case false:",
		Package: "images",
		Test:    "TestImagesThatCannotBeUsed",
	},
}
