from tests.load.load import main

main()
