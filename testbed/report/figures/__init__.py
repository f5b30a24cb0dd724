"""One module per plot. Each function takes what was loaded and returns a figure, drawn within `style.styled()`."""
