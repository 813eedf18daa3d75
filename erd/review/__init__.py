"""`erd review`: a page on which experts look at a batch's flagged images and say what they show."""
