"""What is known about users and items beside their actions: from the columns of a file to rows of numbers."""
