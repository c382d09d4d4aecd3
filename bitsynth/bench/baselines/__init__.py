"""What a user would run instead: fp32 and int8 convolutions of other packages, each in a process of its own."""
